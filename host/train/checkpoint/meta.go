package checkpoint

import (
	"encoding/json/v2"
	"fmt"

	"github.com/cage-qat/cage/internal/plainjson"
)

// Meta holds the parts of a state that are not tensors: total steps, seeds, counters, the
// identity of the run. Each value is stored as JSON text, so that any program can read it
// and no number loses digits.
type Meta map[string]string

// Set stores a value under key, as JSON.
func (m Meta) Set(key string, value any) error {
	text, err := json.Marshal(value, json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("checkpoint metadata %q: %w", key, err)
	}
	m[key] = string(text)
	return nil
}

// Get decodes the value under key into the variable that value points to. A
// missing key, or a value of another type, is an error that wraps ErrDamaged.
func (m Meta) Get(key string, value any) error {
	text, ok := m[key]
	if !ok {
		return fmt.Errorf("%w: metadata has no %q", ErrDamaged, key)
	}
	if err := json.Unmarshal([]byte(text), value, json.RejectUnknownMembers(true)); err != nil {
		return fmt.Errorf("%w: metadata %q: %w", ErrDamaged, key, plainjson.Explain([]byte(text), err))
	}
	return nil
}

// GetIf is Get for a key that may be missing; if it is, the variable is not changed.
func (m Meta) GetIf(key string, value any) error {
	if _, ok := m[key]; !ok {
		return nil
	}
	return m.Get(key, value)
}
