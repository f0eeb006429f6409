package plaintoml

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/BurntSushi/toml"
	"github.com/pelletier/go-toml/v2/unstable"
)

// maxDepth limits the parts of a dotted key and the nesting of values, of which the schema needs
// four. BurntSushi/toml takes quadratic time in the depth, so the limit is checked before it
// decodes the text. The check ends at invalid TOML; there, maxOpen limits the number of open
// brackets.
const (
	maxDepth = 16
	maxOpen  = 1000 // brackets
)

// maxNames limits the total size of the full names of all keys in a text, in bytes. The name of a
// key includes that of its table. A study of 10,000 cells needs a tenth of this limit.
const maxNames = 32 << 20

// outline finds the line of each key in a TOML text, and the source text of each scalar, which
// BurntSushi/toml does not report. It stops at invalid TOML, because BurntSushi/toml reports that.
type outline struct {
	doc    *Document
	text   []byte
	offset int            // of the last position whose line was determined
	line   int            // at offset
	arrays map[string]int // number of tables [[NAME]] so far
	names  int            // bytes of all names so far
	err    *Error
}

// location is the location of a key during parsing.
type location struct {
	key  toml.Key
	name string // the dotted key, with the indexes in arrays of tables
	line int
}

func (o *outline) read() *Error {
	open := 0
	for i, c := range o.text {
		switch c {
		case '[', '{':
			open++
		case ']', '}':
			open = max(0, open-1) // brackets in comments and strings can be unbalanced
		}
		if open > maxOpen {
			o.tooDeep(o.lineAt(i))
			return o.err
		}
	}
	var p unstable.Parser
	p.Reset(o.text)
	var table location
	for o.err == nil && p.NextExpression() {
		switch e := p.Expression(); e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = o.key(location{}, e, e.Kind == unstable.ArrayTable)
		case unstable.KeyValue:
			o.keyValue(table, e)
		}
	}
	return o.err
}

func (o *outline) tooDeep(line int) {
	o.err = &Error{File: o.doc.file, Line: line, Msg: "keys or values are nested too deeply",
		Hint: fmt.Sprintf("want at most %d levels", maxDepth)}
}

// lineAt returns the line that contains offset. Offsets must not decrease between calls.
func (o *outline) lineAt(offset int) int {
	o.line += bytes.Count(o.text[o.offset:offset], []byte{'\n'})
	o.offset = offset
	return o.line
}

// key records every prefix of an expression's dotted key when it is first mentioned, and returns
// the location of the whole key. A key below an array of tables refers to its last table so far; if
// array is set, a table is added first.
func (o *outline) key(at location, e *unstable.Node, array bool) location {
	at.key = slices.Clone(at.key)
	for parts := e.Key(); parts.Next() && o.err == nil; {
		part := parts.Node()
		at.line = o.lineAt(int(part.Raw.Offset))
		if at.key = append(at.key, string(part.Data)); len(at.key) > maxDepth {
			o.tooDeep(at.line)
			return at
		}
		at.name = JoinKey(at.name, string(part.Data))
		o.mention(at)
		if array && parts.IsLast() {
			o.arrays[at.name]++
		}
		if count := o.arrays[at.name]; count > 0 {
			at.name = Indexed(at.name, count-1)
			o.mention(at)
		}
	}
	return at
}

func (o *outline) mention(at location) {
	if o.names += len(at.name); o.names > maxNames {
		o.err = &Error{File: o.doc.file, Line: at.line,
			Msg:  "the names of all keys are too long together",
			Hint: fmt.Sprintf("want at most %d bytes, including the names of the tables", maxNames)}
	}
	if _, known := o.doc.keys[at.name]; !known {
		o.doc.keys[at.name] = position{line: at.line}
	}
}

func (o *outline) keyValue(table location, e *unstable.Node) {
	at := o.key(table, e, false)
	o.doc.leaves = append(o.doc.leaves, leaf{at.key, at.name, len(o.doc.leaves)})
	o.value(at, e.Value(), len(at.key))
}

// value records the scalars and tables within a value.
func (o *outline) value(at location, v *unstable.Node, depth int) {
	switch {
	case o.err != nil:
	case depth > maxDepth:
		o.tooDeep(at.line)
	case v.Kind == unstable.Array:
		i := 0
		for elements := v.Children(); elements.Next(); i++ {
			element := location{key: at.key, name: Indexed(at.name, i), line: at.line}
			if elements.Node().Kind == unstable.InlineTable {
				element.line = o.lineAt(int(elements.Node().Raw.Offset))
				o.mention(element)
			}
			o.value(element, elements.Node(), depth+1)
		}
	case v.Kind == unstable.InlineTable:
		for pairs := v.Children(); pairs.Next(); {
			o.keyValue(at, pairs.Node())
		}
	case v.Kind != unstable.String:
		o.doc.scalars[at.name] = string(v.Data)
	}
}
