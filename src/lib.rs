//! sdam
