package huggingface

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"slices"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/internal/vfs"
)

// A Description is a checkpoint's description of its model and of its text generation: the contents
// of config.json and of generation_config.json, nil if the file is missing. A model made from the
// checkpoint keeps it, except for keys that training has changed ([Description.For]).
type Description struct{ Config, Generation []byte }

// DescriptionFiles lists the names of the files of a [Description].
var DescriptionFiles = []string{ConfigName, tokenizer.GenerationFile}

// ReadDescription reads the description files in a directory.
func ReadDescription(dir vfs.Path) (d Description, err error) {
	for i, to := range []*[]byte{&d.Config, &d.Generation} {
		text, err := dir.Join(DescriptionFiles[i]).ReadSmallFile(maxTextSize)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return d, err
		}
		*to = text
	}
	if d.Config != nil {
		d.Config, err = textModel(d.Config)
	}
	return d, err
}

// parse parses the files, for sequences of context tokens. The error is an [*Error] whose Path is
// the name of a file.
func (d Description) parse(context int) (*Config, error) {
	c, err := ParseConfig(d.Config, context)
	if fault, ok := errors.AsType[*Error](err); ok {
		fault.Path = ConfigName
		return nil, fault
	}
	if err != nil || d.Generation == nil {
		return c, err
	}
	k, err := newKeys(d.Generation)
	if err != nil {
		return nil, &Error{Path: tokenizer.GenerationFile, Faults: []string{err.Error()}}
	}
	for _, id := range k.ids(endKey, c.Settings.Vocab) {
		if !slices.Contains(c.Tokens.End, id) {
			c.Tokens.End = append(c.Tokens.End, id)
		}
	}
	if len(k.faults) > 0 {
		return nil, &Error{Path: tokenizer.GenerationFile, Faults: k.faults}
	}
	return c, nil
}

// For returns the description of a model with settings s that was made from the described one and
// trained with the given special tokens. Keys that apply to both models are unchanged. The error is
// an [*Error] if training cannot have made such a model from the described one.
func (d Description) For(s architecture.Settings, trained Tokens) (Description, error) {
	s.FillIn()
	c, err := d.parse(s.Context)
	if err != nil {
		return d, err
	}
	var faults []string // differences that training cannot have made
	found, want := shape(c.Settings), shape(s)
	if c.Settings.Kind != s.Kind {
		faults, want = []string{fmt.Sprintf("model_type: found a model of the kind %s, want one of the "+
			"kind %s", c.Settings.Kind, s.Kind)}, nil
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if !reflect.DeepEqual(found[key], want[key]) && (key != vocabKey || s.Vocab < c.Settings.Vocab) {
			faults = append(faults, fmt.Sprintf("%s: found %v, want %v", key, found[key], want[key]))
		}
	}
	if len(faults) > 0 {
		return d, &Error{Path: ConfigName, Faults: faults}
	}
	after := Config{Architecture: c.Architecture, Settings: s,
		MaxPositions: max(s.Context, c.MaxPositions)}
	changes, err := after.computed()
	if err != nil {
		return d, err
	}
	if c.OtherWindow > 0 && s.Window == 0 { // the described window stays, for longer sequences
		delete(changes, switchKey)
		delete(changes, windowKey)
		delete(changes, layersKey)
	}
	if d.Config, err = change(d.Config, changes, c.Tokens, trained); err == nil &&
		d.Generation != nil {
		d.Generation, err = change(d.Generation, map[string]any{}, c.Tokens, trained)
	}
	return d, err
}

// change returns the text of an object with new values for some keys, and with the tokens that a
// model was trained on in addition to the described ones. All other values keep their text.
func change(text []byte, changes map[string]any, described, trained Tokens) ([]byte, error) {
	k, err := newKeys(text)
	if err != nil {
		return nil, err
	}
	own := func(key string, otherwise []int32) []int32 { // a file may leave it to the other one
		if ids := k.ids(key, 0); len(ids) > 0 {
			return ids
		}
		return otherwise
	}
	if begin := trained.Begin; len(begin) > 0 && !slices.Equal(own(beginKey, described.Begin), begin) {
		changes[beginKey] = begin[0]
	}
	more := slices.DeleteFunc(slices.Clone(trained.End),
		func(id int32) bool { return slices.Contains(described.End, id) })
	if len(more) > 0 {
		changes[endKey] = oneOrMore(slices.Concat(own(endKey, described.End), more))
	}
	if k.set(changes); len(changes) == 0 {
		return text, nil
	}
	return encode(k.values)
}

// set sets keys to new values, and removes those that are equal to the old ones from the list.
func (k *keys) set(changes map[string]any) {
	for key, value := range changes {
		text, err := json.Marshal(value, json.Deterministic(true))
		var was, is any
		old, exists := k.values[key]
		if exists && errors.Join(err, json.Unmarshal(old, &was), json.Unmarshal(text, &is)) == nil &&
			reflect.DeepEqual(was, is) {
			delete(changes, key)
			continue
		}
		k.values[key] = text
	}
}

// Stored returns config with the type of the stored weights and with entries for the program that
// loads them, such as how they are packed. It removes those of another checkpoint's packing, and
// the reference to a Python module in its directory.
func Stored(config []byte, dtype safetensors.DType, entries map[string]any) ([]byte, error) {
	k, err := newKeys(config)
	if err != nil {
		return nil, err
	}
	for _, key := range []string{quantizationKey, "quantization", "compression_config", "auto_map"} {
		delete(k.values, key)
	}
	const before, since5 = "torch_dtype", "dtype"
	changes := map[string]any{}
	maps.Copy(changes, entries)
	for _, key := range []string{before, since5} {
		if k.has(key) || key == before && !k.has(since5) {
			changes[key] = torchNames[dtype]
		}
	}
	k.set(changes)
	return encode(k.values)
}

func encode(object any) ([]byte, error) {
	text, err := json.Marshal(object, json.Deterministic(true), jsontext.WithIndent("  "))
	return append(text, '\n'), err
}

// oneOrMore returns token ids as the value of a key: a number for one id, otherwise a list.
func oneOrMore(ids []int32) any {
	if len(ids) == 1 {
		return ids[0]
	}
	return ids
}
