"""Results as people read them: tables in Markdown, figures. What is computed, and how, is not here."""
