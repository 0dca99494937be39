"""What a person asks for, made of the rooms below: train, robustify, reproduce, audit."""
