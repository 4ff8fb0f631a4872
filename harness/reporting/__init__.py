"""From report.json to what people read: schema, layer tables, Markdown, a short table for the terminal.

`report.json` is the only source; everything here turns that dict into text and measures nothing.
"""
