// Package jinja renders chat templates: programs in the language Jinja that write a list
// of messages as one text. Models publish them in tokenizer_config.json or
// chat_template.jinja.
//
// It contains an interpreter for the part of Jinja that such templates use, with the same
// environment as the library transformers: trim_blocks and lstrip_blocks are on, one
// newline at the end of the source is dropped, loops have break and continue, the output
// of a generation block is recorded, and tojson writes what Python's json.dumps writes.
// Everything else in Jinja (inheritance, includes, autoescape) is refused when a template
// is parsed.
//
// A template is somebody else's program. It sees only the variables it is given, cannot
// change them, and is stopped with an error if it computes or writes too much. Package
// chat decides what the messages mean, and which of them a model learns from.
package jinja
