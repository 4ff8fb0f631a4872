"""From report.json to what people read: schema, layer tables, Markdown, the table at the end of a terminal run.

`report.json` is the only source; everything here turns that dict into text and measures nothing.
"""
