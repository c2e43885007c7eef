"""What pages are built of: charts, tables, HTML, chat, tokens, forms. These modules draw with Streamlit."""
