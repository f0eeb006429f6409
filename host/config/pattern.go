package config

import (
	"slices"
	"strings"
)

// pattern is the range of one or several patterns of names.
func pattern() rule {
	return rule{words: "of at least one character each", ok: func(v any) bool {
		return len(v.([]string)) > 0 && !slices.Contains(v.([]string), "")
	}}
}

// someOf is the range of one or several choices.
func someOf(choices ...string) rule {
	return rule{choices: choices, ok: func(v any) bool {
		for _, s := range v.([]string) {
			if !slices.Contains(choices, s) {
				return false
			}
		}
		return len(v.([]string)) > 0
	}}
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, name) })
}

// matches reports whether a name fits a pattern, in which * stands for any run of
// characters and everything else for itself.
func matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	first, last := parts[0], parts[len(parts)-1]
	if len(name) < len(first)+len(last) || !strings.HasPrefix(name, first) || !strings.HasSuffix(name, last) {
		return false
	}
	name = name[len(first) : len(name)-len(last)]
	// Each part at its first place leaves the most for those after it.
	for _, part := range parts[1 : len(parts)-1] {
		_, after, found := strings.Cut(name, part)
		if !found {
			return false
		}
		name = after
	}
	return true
}
