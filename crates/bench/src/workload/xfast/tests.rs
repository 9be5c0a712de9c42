//! What experiments draw.
