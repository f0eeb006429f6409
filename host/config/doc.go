// Package config is the TOML schema of a training run, strictly checked.
//
// Here live the reading of a file and of command-line overrides, and the writing of a
// fully resolved configuration. The keys of a table stand in the package that the
// table is about, as a list of [schema.Key]: [model] and its presets in host/model,
// [schedule] in host/schedule, [method] in host/cage, [diagnostics] in
// host/diagnostics; the others, about several packages or none, stand here in
// the files named table*.go. These lists drive validation, defaults, [Config.Encode]
// and [Reference], so that they cannot disagree.
//
// A problem is reported as an [*Error] with file, line, key, what was found
// and what would be right; all problems of a file are reported at once, as
// [Errors]. Keys match exactly, case included, and an unknown key is an error.
//
// Beside the file, only the sizes of the model that model.init names are read, and only where
// the file leaves one of them out.
//
// What does not belong here: opening data, starting plugins or devices, and
// checking the parameters of a plugin. A plugin declares its own parameters;
// whoever has asked it checks them and reports with [Config.ErrorAt] and
// [schema.Nearest].
//
// Relative paths of data, tokenizer and output are relative to the working
// directory of the process, not to the configuration file.
package config
