"""Registers the plugin for every test below this folder."""

pytest_plugins = ["harness.plugin.hooks", "pytester"]
