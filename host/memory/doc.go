// Package memory tells before a run begins whether there is memory for it: [Estimate]
// computes from sizes alone what a run needs, [Machine] asks the system what it may
// take, and [Check] compares the two and says what would fit.
//
// What may not live here: configurations, graphs, anything that allocates. How often a
// tensor is counted was fitted to measurements of the CPU device; devices that fuse
// operations need less.
package memory
