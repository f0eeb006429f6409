// Package config is the TOML schema of a training run, strictly checked.
//
// Here live the table of every key (its type, range, default and meaning),
// the reading of a file and of command-line overrides against that table, the
// presets, and the writing of a fully resolved configuration. One table, in
// the files named table*.go, drives validation, defaults, [Config.Encode] and
// [Reference], so that they cannot disagree.
//
// A problem is reported as an [*Error] with file, line, key, what was found
// and what would be right; all problems of a file are reported at once, as
// [Errors]. Keys match exactly, case included, and an unknown key is an error.
//
// What does not belong here: opening data, starting plugins or devices, and
// checking the parameters of a plugin. A plugin declares its own parameters;
// whoever has asked it checks them and reports with [Config.ErrorAt] and
// [Nearest].
//
// Relative paths of data, tokenizer and output are relative to the working
// directory of the process, not to the configuration file.
package config
