// Package ruler is the benchmark RULER (Hsieh et al., 2024, arXiv:2404.06654): 13 tasks
// that ask for something in a text as long as one likes. It makes the prompts, to the
// character as RULER's scripts make them with the same inputs (github.com/NVIDIA/RULER at
// c3f5e3b4), keeps them with what a model answered, and scores the answers.
//
// How many tokens a text has, and what a model answers, come from outside: this package
// knows neither tokenizers nor models.
package ruler
