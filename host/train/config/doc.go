// Package config is the TOML schema of a training run, strictly checked.
//
// It reads configuration files and command-line overrides, and writes fully resolved configurations. The keys of a
// table are defined, as a list of [schema.Key], in the package that the table is about: [model] and its presets in
// host/model, [schedule] in host/method/schedule, [method] in host/method/cage, [diagnostics] in host/method/diagnostics. The keys of tables
// that concern several packages, or none, are defined here, in the files named table*.go. Validation, defaults,
// [Config.Encode] and [Reference] are all driven by these lists, so they cannot disagree.
//
// A problem is reported as an [*plaintoml.Error] with the file, line and key, what was found and what would be right. All
// problems of a file are reported at once, as [plaintoml.Errors]. Keys match exactly, case included, and an unknown key is an
// error.
//
// Nothing but the configuration file is read, with one exception: if the file leaves out a size of the model, it is
// read from the model that model.init names.
//
// What does not belong here: opening data, starting plugins or devices, and checking the parameters of a plugin. A
// plugin declares its own parameters; whoever has asked it for them checks them and reports problems with
// [Config.ErrorAt] and [schema.Nearest].
//
// Relative paths of data, tokenizer and output are relative to the working directory of the process, not to the
// configuration file.
package config
