package source

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/testing/testlevel"
)

type message struct {
	Role    string `parquet:"role"`
	Content string `parquet:"content"`
}

type talk struct {
	ID       int64     `parquet:"id"`
	Messages []message `parquet:"messages,list"`
	Tags     []string  `parquet:"tags"`
}

func TestReadParquet(t *testing.T) {
	content := inParquet(t,
		[]talk{{1, []message{{"user", "ü\n\"x\""}, {"assistant", "b"}}, []string{"p", "q"}},
			{2, nil, nil}})
	for columns, want := range map[string]string{
		"messages":      `{"messages":[{"content":"ü\n\"x\"","role":"user"},{"content":"b","role":"assistant"}]}|`,
		"id,x":          `{"id":1}|{"id":2}|`,
		"tags,messages": `{"messages":[{"content":"ü\n\"x\"","role":"user"},{"content":"b","role":"assistant"}],"tags":["p","q"]}|`,
	} {
		got := ""
		for row, err := range ReadParquet(bytes.NewReader(content), int64(len(content)),
			strings.Split(columns, ",")) {
			if err != nil || row.Err != nil {
				t.Fatal(err, row.Err)
			}
			got += string(row.Text) + "|"
			if all := append(slices.Clone(row.Unread),
				strings.Split(strings.TrimSuffix(columns, ",x"), ",")...); len(all) != 3 {
				t.Errorf("%s: not read: %q", columns, row.Unread)
			}
		}
		if !strings.HasPrefix(got, want) || strings.Count(got, "|") != 2 {
			t.Errorf("%s:\ngot  %s\nwant %s", columns, got, want)
		}
	}
	for _, columns := range [][]string{{"conversations"}, {"a", "b", "c", "d", "e"}} {
		want := "none of the columns " + strings.Replace(strings.Join(columns, ", "), "d, e", "d, …", 1) +
			" exists; the file has id, messages, tags"
		for _, err := range ReadParquet(bytes.NewReader(content), int64(len(content)), columns) {
			if err == nil || err.Error() != want {
				t.Errorf("no such column: %v, want %s", err, want)
			}
		}
	}
}

// TestParquetObjectsText checks that invalid UTF-8 is an error of its row, and is not replaced.
func TestParquetObjectsText(t *testing.T) {
	content := inParquet(t,
		[]talk{{1, []message{{"user", "a\xffb"}}, nil}, {2, []message{{"user", "b"}}, nil}})
	var problems []string
	for row, err := range ReadParquet(bytes.NewReader(content), int64(len(content)),
		[]string{"messages"}) {
		if err != nil {
			t.Fatal(err)
		}
		if row.Err != nil {
			problems = append(problems, row.Err.Error())
		}
	}
	if want := []string{`row 1: a text is not UTF-8`}; !slices.Equal(problems, want) {
		t.Errorf("problems %q, want %q", problems, want)
	}
}

// TestParquetObjectsDamage checks that a damaged file gives an error or rows, and no panic.
func TestParquetObjectsDamage(t *testing.T) {
	content := inParquet(t, []talk{{1, []message{{"user", "a"}, {"assistant", "b"}}, nil}})
	for at := range content {
		damaged := bytes.Clone(content)
		damaged[at] ^= 0x55
		for row, err := range ReadParquet(bytes.NewReader(damaged), int64(len(damaged)),
			[]string{"messages"}) {
			if _, ok := errors.AsType[*DamagedError](err); err != nil && !ok &&
				!strings.HasPrefix(err.Error(), "none of the columns") {
				t.Errorf("byte %d: %v, %v", at, row, err)
			}
		}
	}
}

func TestReadObjects(t *testing.T) {
	got := ""
	for row, err := range ReadObjects(strings.NewReader("\xef\xbb\xbf{\"a\": 1}\n\n [2]\nx")) {
		if err != nil || row.Err != nil {
			t.Fatal(err, row.Err)
		}
		got += fmt.Sprintf("%d:%s|", row.Number, strings.TrimSpace(string(row.Text)))
	}
	if want := `1:{"a": 1}|3:[2]|4:x|`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestLongObject checks that a line that is too long is an error of its row only.
func TestLongObject(t *testing.T) {
	testlevel.Long(t, "a line of 64 MiB")
	long := strings.Repeat("x", MaxRow+1) + "\n{}"
	n := 0
	for row, err := range ReadObjects(strings.NewReader(long)) {
		if n++; err != nil || (n == 1) != (row.Err != nil) {
			t.Errorf("row %d: %v, %v", n, err, row.Err)
		}
	}
	if n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}
