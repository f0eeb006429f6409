// Package onepass computes on the processor, in one pass over rows of slices, what models need beside products, attention and the
// programs of plugins: adjoints of norms, gates, and losses of logits. Graphs, devices and what the rows are of it does not know.
package onepass
