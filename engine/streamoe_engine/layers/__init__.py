"""How a band's layers run: through MLX modules, or as C calls. One interface, chosen at open."""
