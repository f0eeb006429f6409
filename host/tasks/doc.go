// Package tasks asks language models the questions of published benchmarks, and judges what they answer: with the prompts,
// the tokens at borders, the metrics and the standard errors of EleutherAI's lm-eval 0.4.13, so that a number here is the
// number there.
//
// A task is a file of declarations (definitions/*.toml): templates that make a question of a row of data, and names of
// metrics. The package knows no model: it makes requests of token ids, and receives how likely continuations are, or texts.
package tasks
