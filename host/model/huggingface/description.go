package huggingface

import (
	"cmp"
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
	changes := map[string]any{}
	if s.Vocab != c.Settings.Vocab {
		changes[vocabKey] = s.Vocab
	}
	if s.Context > c.MaxPositions {
		changes[positionsKey] = s.Context
	}
	if s.Window != c.Settings.Window {
		maps.Copy(changes, c.windowed(s))
	}
	if now := wavelengths(s); !reflect.DeepEqual(now, wavelengths(c.Settings)) {
		// The version of transformers that wrote the file determines the form.
		k, _ := newKeys(d.Config) // it was parsed successfully before
		maps.Copy(changes, now)
		if k.has(parametersKey) || s.Kind == architecture.KindOLMo3 {
			changes[parametersKey] = ropeParameters(s)
		}
		if k.has(parametersKey) && !k.has(scalingKey) && !k.has(thetaKey) {
			changes[scalingKey], changes[thetaKey] = nil, nil
		}
	}
	if d.Config, err = change(d.Config, changes, c.Tokens, trained); err == nil &&
		d.Generation != nil {
		d.Generation, err = change(d.Generation, map[string]any{}, c.Tokens, trained)
	}
	return d, err
}

// windowed returns the keys that give the described model the window of s.
func (c *Config) windowed(s architecture.Settings) map[string]any {
	switch {
	case s.Kind != architecture.KindLlama:
		return map[string]any{windowKey: cmp.Or(s.Window, max(s.Context, c.MaxPositions))}
	case s.Window == 0:
		return map[string]any{windowKey: jsontext.Value("null")} // not absent: that means 4096
	}
	return map[string]any{windowKey: s.Window, "model_type": mistralFamily.modelType,
		"architectures": []string{mistralFamily.architecture}}
}

// change returns the text of an object with new values for some keys, where nil removes a key, and
// with the tokens that a model was trained on in addition to the described ones. All other values
// keep their text.
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
	if len(changes) == 0 {
		return text, nil
	}
	object := map[string]any{}
	for key, value := range k.values {
		object[key] = value
	}
	for key, value := range changes {
		if object[key] = value; value == nil {
			delete(object, key)
		}
	}
	return encode(object)
}

// Stored returns config with the type of the stored weights and the entries of packing, which
// describe how they are packed. It removes those of another checkpoint's packing, and the reference
// to a Python module in its directory.
func Stored(config []byte, dtype safetensors.DType, packing map[string]any) ([]byte, error) {
	k, err := newKeys(config)
	if err != nil {
		return nil, err
	}
	changes := map[string]any{quantizationKey: nil, "quantization": nil, "compression_config": nil,
		"auto_map": nil}
	maps.Copy(changes, packing)
	const before, since5 = "torch_dtype", "dtype"
	for _, key := range []string{before, since5} {
		if k.has(key) || key == before && !k.has(since5) {
			changes[key] = torchNames[dtype]
		}
	}
	return change(config, changes, Tokens{}, Tokens{})
}

func encode(object map[string]any) ([]byte, error) {
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
