//! dlm
