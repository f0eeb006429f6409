package serve_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/cage-qat/cage/host/study/serve"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/testing/testbrowser"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

const secret = "TOKENTOKENTOKENTOKENTOKEN"

// trained makes a run that counts as running until the test ends.
func trained(t testing.TB, dir string) rundir.Dir {
	t.Helper()
	lock, err := rundir.At(dir).Lock().Lock()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lock.Unlock(); err != nil {
			t.Error(err)
		}
	})
	return rundir.At(dir)
}

// TestAsk: who knows the token can ask a run that is trained, by POST, from these pages.
func TestAsk(t *testing.T) {
	root := runs(t)
	b := trained(t, filepath.Join(root, "b"))
	h := serve.New(serve.Options{Roots: []string{root}, Token: secret}).Handler()
	form := func(run, what string) string { return url.Values{"run": {run}, "what": {what}}.Encode() }
	good := form(b.Name, "stop")
	for _, c := range []struct {
		name, method, path, body, token, site string
		want                                  int
	}{
		{"no token", "POST", "/ask", good, "", "", 403},
		{"another token", "POST", "/ask", good, secret[1:] + "A", "", 403},
		{"a part of it", "POST", "/ask", good, secret[:5], "", 403},
		{"the token in the address", "POST", "/ask?token=" + secret, good, "", "", 403},
		{"GET", "GET", "/ask?" + good, "", secret, "", 405},
		{"from another site", "POST", "/ask", good, secret, "cross-site", 403},
		{"from a report, which is sandboxed", "POST", "/ask", good, secret, "null", 403},
		{"the form in the address", "POST", "/ask?" + good, "", secret, "", 400},
		{"too long", "POST", "/ask", "run=" + strings.Repeat("x", 1<<20), secret, "", 400},
		{"something else", "POST", "/ask", form(b.Name, "../stop"), secret, "", 400},
		{"an unknown run", "POST", "/ask", form(root+"/../b", "stop"), secret, "", 404},
		{"a run that nobody trains", "POST", "/ask", form(filepath.Join(root, "a"), "stop"), secret, "", 409},
	} {
		w := post(h, c.method, c.path, c.body, c.token, c.site)
		if w.Code != c.want {
			t.Errorf("%s: %d %s, want %d", c.name, w.Code, w.Body, c.want)
		}
	}
	if b.Take(rundir.Stop) || b.Take(rundir.Checkpoint) {
		t.Fatal("a request that was refused was passed on")
	}
	for _, what := range []rundir.Request{rundir.Stop, rundir.Checkpoint} {
		if w := post(h, "POST", "/ask", form(b.Name, string(what)), secret, "same-origin"); w.Code != http.StatusNoContent || !b.Take(what) {
			t.Errorf("%s: %d %s", what, w.Code, w.Body)
		}
	}
	if w := post(pages(root), "POST", "/ask", good, "", ""); w.Code != 403 {
		t.Errorf("a server without a token: %d", w.Code)
	}
}

func post(h http.Handler, method, path, body, token, site string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://127.0.0.1:7170"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if token != "" {
		r.Header.Set("X-Cage-Token", token)
	}
	switch site {
	case "":
	case "null":
		r.Header.Set("Origin", "null")
	default:
		r.Header.Set("Sec-Fetch-Site", site)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestStudies: a study shows how many of its cells are done, and its report in a sandbox.
func TestStudies(t *testing.T) {
	root := filepath.Join(t.TempDir(), "studies")
	one := filepath.Join(root, "one")
	put(t, one, "study.toml", "")
	for _, cell := range []string{"x", "y", "z"} {
		put(t, one, "cells", cell, "run.toml", "seed = 1\n")
	}
	put(t, one, "cells", "x", "summary.json", `{"completed": true}`)
	put(t, root, "none", "cells", "x", "run.toml", "seed = 1\n")
	h := pages(root)
	body := get(t, h, "/studies").Body.String()
	for _, want := range []string{`title="` + one + `">studies/one</a>`, "1 / 3", `<span class="state done">1 done</span>`, `<span class="state interrupted">2 interrupted</span>`} {
		if !strings.Contains(body, want) {
			t.Errorf("the page of studies lacks %q:\n%s", want, body)
		}
	}
	if strings.Contains(body, "none") {
		t.Error("runs below a directory cells are taken for a study")
	}
	if w := get(t, h, "/report", "study", one); w.Code != 404 {
		t.Errorf("there is no report: %d", w.Code)
	}
	put(t, one, "report", "index.html", hostile)
	w := get(t, h, "/report", "study", one)
	if policy := w.Header().Get("Content-Security-Policy"); w.Code != 200 || w.Body.String() != hostile || !strings.HasPrefix(policy, "sandbox allow-scripts; default-src 'none';") {
		t.Errorf("the report: %d, %q, %s", w.Code, policy, w.Body)
	}
	if opener := w.Header().Get("Cross-Origin-Opener-Policy"); opener != "" {
		t.Errorf("the report is in a sandbox and has an opener policy, %q: browsers may refuse it", opener)
	}
	for _, study := range []string{"", root, filepath.Join(root, "none"), one + "/", one + "/../one", "/"} {
		if w := get(t, h, "/report", "study", study); w.Code != 404 {
			t.Errorf("the report of %q: %d", study, w.Code)
		}
	}
}

// TestButtons: they are there for those who opened the page by its whole address.
func TestButtons(t *testing.T) {
	testlevel.Long(t, "starts a browser")
	t.Parallel()
	root := runs(t)
	b := trained(t, filepath.Join(root, "b"))
	server := httptest.NewServer(impatient(serve.New(serve.Options{Roots: []string{root}, Token: secret}).Handler()))
	t.Cleanup(server.Close)
	run := server.URL + "/run?" + url.Values{"run": {b.Name}}.Encode()
	page := testbrowser.Open(t, run, func(u string) bool { return strings.HasPrefix(u, server.URL+"/") })
	page.Await("the script does not run", `document.querySelectorAll(".plot canvas").length > 0`)
	const seen = `getComputedStyle(document.querySelector(".actions")).display !== "none"`
	page.Want("buttons without a token", testbrowser.Eval[bool](page, seen), false)
	page.Do(chromedp.Navigate(server.URL + "/#token=" + secret))
	page.Await("the token is not taken", `location.hash === "" && sessionStorage.getItem("token") !== null`)
	page.Do(chromedp.Navigate(run), chromedp.WaitVisible(chromedp.CSS(`[data-ask="stop"]`)), chromedp.Click(chromedp.CSS(`[data-ask="stop"]`)))
	for began := time.Now(); !b.Take(rundir.Stop); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > testbrowser.Limit {
			t.Fatal("the run was not asked to stop")
		}
	}
}
