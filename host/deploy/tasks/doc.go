// Package tasks asks language models the questions of published benchmarks, and judges their answers. Prompts, the
// division into tokens at borders, metrics and standard errors are those of EleutherAI's lm-eval 0.4.13, so that
// results can be compared with its results.
//
// A task is described by a file (definitions/*.toml): templates that turn a row of data into a question, and names of
// metrics. The package knows no model: it makes requests in token ids, and receives how likely continuations are, or
// texts.
package tasks
