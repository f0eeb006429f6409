package plaintoml

import (
	"fmt"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// maxDepth bounds the parts of a dotted key and the nesting of values. The schema needs four.
// BurntSushi/toml takes quadratic time in the depth, and unbounded stack, so the bound is checked
// before the text is decoded.
const maxDepth = 16

// maxNames bounds the total size of the full names of all keys of a text, in bytes: each key
// repeats the name of its table. A study of 10,000 cells has a tenth.
const maxNames = 32 << 20

// outline finds the lines of the keys of a TOML text, and the source text of its scalars, which
// BurntSushi/toml does not report. It stops at invalid TOML, which the library reports.
type outline struct {
	doc    *Document
	text   string // remaining text
	line   int
	arrays map[string]int // number of tables [[NAME]] so far
	names  int            // bytes of all names so far
	err    *Error
}

// location is a key in the tree while parsing.
type location struct {
	key  toml.Key
	name string // the dotted key, with the indexes in arrays of tables
	line int
}

func (o *outline) read() *Error {
	var table location
	for o.space(); o.text != ""; o.space() {
		if !o.accept("[") {
			o.keyValue(table)
			continue
		}
		array := o.accept("[")
		table = o.key(location{}, array)
		if !o.accept("]") || array && !o.accept("]") {
			o.text = ""
		}
	}
	return o.err
}

func (o *outline) tooDeep(line int) {
	o.err = &Error{File: o.doc.file, Line: line, Msg: "keys or values are nested too deep",
		Hint: "no key of a configuration has more than three parts"}
	o.text = ""
}

func (o *outline) take(n int) string {
	taken := o.text[:n]
	o.text = o.text[n:]
	o.line += strings.Count(taken, "\n")
	return taken
}

func (o *outline) accept(prefix string) bool {
	found := strings.HasPrefix(o.text, prefix)
	if found {
		o.take(len(prefix))
	}
	return found
}

func (o *outline) space() {
	for o.take(len(o.text) - len(strings.TrimLeft(o.text, " \t\r\n"))); strings.HasPrefix(o.text, "#"); {
		comment, _, _ := strings.Cut(o.text, "\n")
		o.take(len(comment))
		o.take(len(o.text) - len(strings.TrimLeft(o.text, " \t\r\n")))
	}
}

func (o *outline) quoted() string {
	quote := o.text[:1]
	if three := strings.Repeat(quote, 3); strings.HasPrefix(o.text, three) {
		quote = three
	}
	end := len(quote)
	for end < len(o.text) && !strings.HasPrefix(o.text[end:], quote) {
		if quote[0] == '"' && o.text[end] == '\\' {
			end++
		}
		end++
	}
	end = min(end+len(quote), len(o.text))
	for len(quote) == 3 && end < len(o.text) && o.text[end] == quote[0] { // the last quotes may belong to the string
		end++
	}
	return o.take(end)
}

// key takes a dotted key, records every prefix of it at its first mention, and returns the
// whole. A key that goes through an array of tables means the last of these so far;
// array adds one.
func (o *outline) key(at location, array bool) location {
	at.key = slices.Clone(at.key)
	for {
		o.space()
		at.line = o.line
		part, ok := "", false
		if strings.HasPrefix(o.text, `"`) || strings.HasPrefix(o.text, "'") {
			var decoded struct{ Part string }
			_, err := toml.Decode("Part = "+o.quoted(), &decoded)
			part, ok = decoded.Part, err == nil
		} else {
			end := strings.IndexAny(o.text, " \t\r\n.=[]{},#\"'")
			if end < 0 {
				end = len(o.text)
			}
			part, ok = o.take(end), end > 0
		}
		if !ok {
			o.text = ""
			return at
		}
		if at.key = append(at.key, part); len(at.key) > maxDepth {
			o.tooDeep(at.line)
			return at
		}
		at.name = JoinKey(at.name, part)
		o.mention(at)
		o.space()
		more := o.accept(".")
		if array && !more {
			o.arrays[at.name]++
		}
		if count := o.arrays[at.name]; count > 0 {
			at.name = Indexed(at.name, count-1)
			o.mention(at)
		}
		if !more {
			return at
		}
	}
}

func (o *outline) mention(at location) {
	if o.names += len(at.name); o.names > maxNames {
		o.err = &Error{File: o.doc.file, Line: at.line, Msg: "the names of the keys are too long together",
			Hint: fmt.Sprintf("want at most %d bytes, each name with those of its tables", maxNames)}
		o.text = ""
	}
	if _, known := o.doc.keys[at.name]; !known {
		o.doc.keys[at.name] = place{line: at.line}
	}
}

func (o *outline) keyValue(table location) {
	at := o.key(table, false)
	if !o.accept("=") {
		o.text = ""
		return
	}
	o.doc.leaves = append(o.doc.leaves, leaf{at.key, at.name})
	o.value(at, len(at.key))
}

// value parses a value, and rejects one that is nested too deeply.
func (o *outline) value(at location, depth int) {
	o.space()
	switch {
	case depth > maxDepth:
		o.tooDeep(at.line)
	case o.accept("["):
		i := 0
		for o.space(); o.text != "" && !o.accept("]"); o.separator("]") {
			element := location{key: at.key, name: Indexed(at.name, i), line: at.line}
			if strings.HasPrefix(o.text, "{") {
				element.line = o.line
				o.mention(element)
			}
			o.value(element, depth+1)
			i++
		}
	case o.accept("{"):
		for o.space(); o.text != "" && !o.accept("}"); o.separator("}") {
			o.keyValue(at)
		}
	case strings.HasPrefix(o.text, `"`), strings.HasPrefix(o.text, "'"):
		o.quoted()
	default:
		end := strings.IndexAny(o.text, ",]}#\n")
		if end < 0 {
			end = len(o.text)
		}
		o.doc.scalars[at.name] = strings.TrimSpace(o.take(end))
	}
}

// separator takes what stands between two elements, and stops where nothing does.
func (o *outline) separator(end string) {
	o.space()
	if !o.accept(",") && !strings.HasPrefix(o.text, end) {
		o.text = ""
	}
	o.space()
}
