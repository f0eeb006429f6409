// Package ruler implements the benchmark RULER (Hsieh et al., 2024, arXiv:2404.06654): 13
// tasks that ask for something in a text of any length. It makes the prompts, which are
// identical, character by character, to those that RULER's scripts make from the same
// inputs (github.com/NVIDIA/RULER at c3f5e3b4), stores them with a model's answers, and
// scores the answers.
//
// The caller provides the number of tokens of a text, and the answers: this package knows
// neither tokenizers nor models.
package ruler
