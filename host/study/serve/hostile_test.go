package serve_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/cage-qat/cage/host/study/serve"
)

// TestHosts checks that pages of other sites cannot read anything, even by DNS rebinding.
func TestHosts(t *testing.T) {
	h := serve.New("Trainer.example", runs(t)).Handler()
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST:7170": 200, "127.0.0.1:7170": 200, "[::1]:7170": 200,
		"192.168.0.7:80": 200, "[fe80::1%25eth0]:80": 200, "trainer.example:7170": 200,
		"": 403, "evil.example": 403, "evil.example:7170": 403, "localhost.evil.example": 403,
		"127.0.0.1.evil.example": 403, "localhost:7170:7170": 403,
		"evil.example#localhost": 403, "2130706433.evil": 403,
	} {
		for _, path := range []string{"/", "/curves?run=x", "/assets/live.js", "/nothing"} {
			r := httptest.NewRequest("GET", path, nil)
			r.Host = host
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if (w.Code == 403) != (want == 403) {
				t.Errorf("%s of %q: %d, want %d", path, host, w.Code, want)
			}
			if want == 403 && !strings.Contains(w.Body.String(),
				"by the IP address of the machine, or start cage serve with --listen NAME:PORT") {
				t.Errorf("%q: %s", host, w.Body)
			}
		}
	}
}

// TestBadRequests checks that a request can name a listed run or an asset, but no other file.
func TestBadRequests(t *testing.T) {
	root := runs(t)
	put(t, filepath.Dir(root), "secret", "run.toml", "seed = 7\n")
	put(t, filepath.Dir(root), "secret", "metrics.jsonl", records(1, 3))
	h := pages(root)
	secret := filepath.Join(filepath.Dir(root), "secret")
	for _, run := range []string{"", ".", "..", "/etc/passwd", secret,
		filepath.Join(root, "a", "..", "..", "secret"), root + "/../secret", root + "/a/../b", root,
		"a\x00", root + "/a/"} {
		for _, path := range []string{"/run", "/facts", "/configuration", "/samples", "/curves"} {
			if w := get(t, h, path, "run", run); w.Code != 404 {
				t.Errorf("%s of %q: %d %s", path, run, w.Code, w.Body)
			}
		}
	}
	a := filepath.Join(root, "a")
	many := url.Values{"run": slices.Repeat([]string{a}, 1000)}.Encode()
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{"GET", "/assets/", 404}, {"GET", "/assets/..%2fserve.go", 404},
		{"GET", "/assets/%2e%2e/serve.go", 404}, {"GET", "/page/live.js", 404},
		{"GET", "/compare", 404}, {"GET", "/curves?" + many, 400},
		{"GET", "/curves?panel=nothing&run=" + url.QueryEscape(a), 404},
		{"GET", "/table?q=%ff%00&sort=%ff&all=%zz", 200},
		{"POST", "/", 405}, {"PUT", "/table", 405}, {"DELETE", "/run?run=" + url.QueryEscape(a), 405},
		{"GET", "/.git/config", 404},
	} {
		r := httptest.NewRequest(c.method, "http://localhost"+c.path, nil)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s %.80s: %d, want %d: %.80s", c.method, c.path, w.Code, c.want, w.Body)
		}
		if w.Code != 200 && !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") &&
			w.Code != 307 {
			t.Errorf("%s %.80s: an error of the type %q", c.method, c.path, w.Header().Get("Content-Type"))
		}
	}
}

// elements returns the elements of a page, with attributes that could load or run something.
func elements(t testing.TB, w *httptest.ResponseRecorder) (list []string) {
	t.Helper()
	z := html.NewTokenizer(w.Body)
	for {
		switch z.Next() {
		case html.ErrorToken:
			return list
		case html.StartTagToken, html.SelfClosingTagToken:
			token := z.Token()
			name := token.Data
			for _, a := range token.Attr {
				if a.Key == "src" || a.Key == "style" || strings.HasPrefix(a.Key, "on") {
					name += " " + a.Key + "=" + a.Val
				}
			}
			list = append(list, name)
		}
	}
}

// TestTextsAreText checks that pages have only the elements of the layout, whatever the files of a
// run contain, and that only the server's scripts may run.
func TestTextsAreText(t *testing.T) {
	root := runs(t)
	h := pages(root)
	c := filepath.Join(root, "c <b>&c")
	get(t, h, "/curves", "run", c)
	for _, path := range []string{"/", "/table", "/run", "/facts", "/configuration", "/samples"} {
		w := get(t, h, path, "run", c, "run", filepath.Join(root, "a"), "q", hostile[:1], "q", hostile)
		if w.Code != 200 {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
		policy := w.Header().Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") ||
			!strings.Contains(policy, "script-src 'self';") || strings.Contains(policy, "unsafe") ||
			w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: the policy is %q", path, policy)
		}
		for _, e := range elements(t, w) {
			if e == "b" || strings.HasPrefix(e, "img") || strings.Contains(e, "=") &&
				!strings.HasPrefix(e, "script src=/assets/") || e == "script" {
				t.Errorf("%s has the element <%s>", path, e)
			}
		}
	}
	if w := get(t, h, "/run", "run", hostile); w.Code != http.StatusNotFound ||
		!strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		t.Errorf("an unknown run: %d %q", w.Code, w.Header())
	}
	if got, wrong := answered(t,
		get(t, h, "/curves", "run", c, "panel", "loss")); got["loss training loss"] != 3 || wrong != "" {
		t.Errorf("curves of hostile records: %v %s", got, wrong)
	}
}
