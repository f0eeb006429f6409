package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
)

// Entry is a key of a resolved configuration with its value in TOML.
type Entry struct{ Key, Value string }

// Entries lists every key in the order of [Config.Encode]. The quantizers of weights
// and activations are listed each on its own.
func (c *Config) Entries() ([]Entry, error) {
	settings, err := c.settings(false)
	if err != nil {
		return nil, err
	}
	list := make([]Entry, len(settings))
	for i, s := range settings {
		list[i] = Entry{s.path(), s.value}
	}
	return list, nil
}

// incidental are the keys that change nothing of what a run computes and records.
var incidental = []string{"train.out", "train.checkpoint_every", "train.checkpoint_minutes", "train.keep", "train.recompute", "device.threads"}

// Fingerprint is a hash of all that decides what a run computes and records: the same for
// configurations that differ in the run directory, in checkpoints, in what is computed
// twice and in threads only.
// Keys that have their defaults do not count, so that it stays what it is when a key is
// added to the schema.
func (c *Config) Fingerprint() (string, error) {
	settings, err := c.settings(false)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, s := range settings {
		if !s.def && !slices.Contains(incidental, s.path()) {
			fmt.Fprintf(h, "%s = %s\n", s.path(), s.value)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
