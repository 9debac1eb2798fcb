"""How a band's layers run up to their routing: one interface, chosen at open."""

from .mlx_layers import LayerByLayer, Layers, RoutedState, Tap, WholeModel

__all__ = ["LayerByLayer", "Layers", "RoutedState", "Tap", "WholeModel"]
