"""Large Frobenius problems: block dual descent, face polish, proximal Newton, rays."""
