"""One model over several machines: finding nodes, piping hidden states through their bands, recovering."""
