"""Results as people read them: Markdown tables, figures, the HTML page. Reads plain data, computes nothing."""
