// Package memory finds out, before a run begins, whether there is enough memory for it.
// [Estimate] computes from sizes alone what a run needs, [Machine] asks the system how
// much the run may take, and [Check] compares the two and says what would fit.
//
// Configurations, graphs, and anything that allocates do not belong here. How often a
// tensor is counted was fitted to measurements of the CPU device; devices that fuse
// operations need less.
package memory
