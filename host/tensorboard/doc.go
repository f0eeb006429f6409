// Package tensorboard writes event files, which TensorBoard and Weights & Biases read: the records of a run as scalars, and
// its configuration as a text.
//
// It knows the format of these files and what the numbers of a record are called there. It reads none, and keeps nothing of a
// run: metrics.jsonl does, from which event files can be made again at any time.
package tensorboard
