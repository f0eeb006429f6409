// Package jinja renders chat templates: programs in the language Jinja that write a list
// of messages as one text, as models publish them in tokenizer_config.json or
// chat_template.jinja.
//
// It holds an interpreter for the part of Jinja that such templates use, in the
// environment that the library transformers gives them: trim_blocks and lstrip_blocks are
// on, one newline at the end of the source is dropped, loops have break and continue, what
// a generation block prints is remembered, and tojson writes what Python's json.dumps
// writes. Everything else of Jinja (inheritance, includes, autoescape) is refused when a
// template is parsed.
//
// A template is somebody else's program. It sees only the variables it is given, cannot
// change them, and is stopped with an error when it computes or writes too much. What the
// messages mean, and which of them a model learns from, is the business of package chat.
package jinja
