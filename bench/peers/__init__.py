"""Other engines beside streamoe, under the same kernel memory limit. See bench/README.md."""
