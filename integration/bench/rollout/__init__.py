"""What clients of a control plane notice while changes go through its three nodes."""
