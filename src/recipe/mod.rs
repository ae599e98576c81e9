//! From an arm to its services, client and files: recipes, overlays, expressions. Pure.
