package schema

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"
)

// FlagName returns the name of the key as a flag of a command.
func (k Key) FlagName() string { return cmp.Or(k.Flag, strings.ReplaceAll(k.Name, "_", "-")) }

// Arguments writes the values of keys that are not their defaults as flags of a command.
func Arguments(keys []Key) (args []string) {
	for _, k := range keys {
		v := k.Value()
		if v == nil || reflect.DeepEqual(v, k.DefaultValue()) {
			continue
		}
		values := []any{v}
		switch list := v.(type) {
		case []string:
			values = nil
			for _, text := range list {
				values = append(values, element(text))
			}
		case []int:
			values = nil
			for _, n := range list {
				values = append(values, n)
			}
		}
		for _, v := range values {
			args = append(args, fmt.Sprintf("--%s=%v", k.FlagName(), v))
		}
	}
	return args
}

// element writes a text as the one element of a list, as flags take them.
func element(text string) string {
	if !strings.ContainsAny(text, "\",\n") {
		return text
	}
	return `"` + strings.ReplaceAll(text, `"`, `""`) + `"`
}
