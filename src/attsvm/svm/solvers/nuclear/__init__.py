"""The nuclear norm: batched interior point, Newton polish, rays, working sets."""
