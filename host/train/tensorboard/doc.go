// Package tensorboard writes event files, which TensorBoard and Weights & Biases can read. They hold the records of a
// run as scalars, and its configuration as a text.
//
// The package knows the format of these files and the names that the numbers of a record have there. It reads no such
// files. They are not the only copy of anything: they can be made again from metrics.jsonl at any time.
package tensorboard
