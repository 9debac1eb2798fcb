"""The commands of `streamoe`, one module each. They open, call and print; what they print is made elsewhere."""
