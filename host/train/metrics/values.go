package metrics

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Value is one number of a record, with its name.
type Value struct {
	Name   string // as in metrics.jsonl; for a single weight weights.WEIGHT.NAME
	Number float64
}

// Values lists what was measured at the step, in the order of the fields. Counts that are zero are left out, as in
// metrics.jsonl.
func (r Record) Values() []Value {
	list := valuesOf("", r)
	for _, weight := range slices.Sorted(maps.Keys(r.Weights)) {
		list = append(list, valuesOf("weights."+weight+".", r.Weights[weight])...)
	}
	return list
}

// valuesOf lists the numbers among the fields of a struct, whose names in JSON follow the prefix.
func valuesOf(prefix string, of any) (list []Value) {
	v := reflect.ValueOf(of)
	for i := range v.NumField() {
		name, option, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		field := v.Field(i)
		if option == "omitempty" && field.IsZero() {
			continue
		}
		if field.Kind() == reflect.Pointer {
			field = field.Elem()
		}
		switch {
		case field.CanFloat():
			list = append(list, Value{prefix + name, field.Float()})
		case field.CanInt():
			list = append(list, Value{prefix + name, float64(field.Int())})
		}
	}
	return list
}

// Timed reports whether a number of a record or a summary is a time, a speed or a size in memory, which another run of
// the same configuration would not reproduce.
func Timed(name string) bool {
	return strings.HasSuffix(name, "seconds") || strings.HasSuffix(name, "per_second") || name == "mfu" || name == "memory_bytes"
}
