"""An example of a package that adds to Ringroad's laboratory (docs/lab/plugins.md)."""
