//! Bodies as servers parse them.
