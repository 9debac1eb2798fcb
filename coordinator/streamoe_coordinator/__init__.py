"""`streamoe` and `streamoe-coord`: chats, samples and shows; speaks to bands only through their boundary."""
