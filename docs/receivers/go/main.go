// A receiver on Go's standard library alone. ../README.md says why it does what it does.
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

var (
	key, keyErr    = base64.StdEncoding.DecodeString(strings.TrimPrefix(os.Getenv("SIGNING_KEY"), "whsec_"))
	inbox          = os.Getenv("INBOX") // a folder; one file a message
	folder, boxErr = os.Open(inbox)
	todo           = make(chan string, 1000)
)

func main() {
	left, err := filepath.Glob(filepath.Join(inbox, strings.Repeat("[0-9a-f]", 64))) // done or not
	if err := errors.Join(keyErr, boxErr, err); err != nil || len(key) < 24 {
		log.Fatal("SIGNING_KEY must be the endpoint's key, and INBOX a folder: ", err)
	}
	go work()
	go func() {
		for _, name := range left {
			todo <- name
		}
	}()
	server := http.Server{Addr: os.Getenv("LISTEN"), Handler: http.HandlerFunc(receive), ReadTimeout: 15 * time.Second}
	log.Fatal(server.ListenAndServe())
}

func receive(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20)) // the raw body, before any parser
	if err != nil {
		http.Error(w, "the body broke off or is over 1 MiB", http.StatusRequestEntityTooLarge)
	} else if err := verify(r.Header, body); err != nil {
		http.Error(w, err.Error(), http.StatusUnauthorized)
	} else if err := store(r.Header.Get("webhook-id"), body); err != nil {
		log.Print(err)
		http.Error(w, "not stored, send it again", http.StatusServiceUnavailable)
	} else {
		w.WriteHeader(http.StatusNoContent)
	}
}

func verify(h http.Header, body []byte) error {
	id, timestamp := h.Get("webhook-id"), h.Get("webhook-timestamp")
	sent, err := strconv.ParseUint(timestamp, 10, 40)
	if id == "" || err != nil {
		return errors.New("webhook-id or webhook-timestamp is missing or malformed")
	}
	if off := time.Now().Unix() - int64(sent); off < -300 || off > 300 {
		return fmt.Errorf("webhook-timestamp is %d seconds off, 300 are allowed", off)
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", id, timestamp, body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	for _, signature := range strings.Fields(h.Get("webhook-signature")) { // one for each key
		if hmac.Equal([]byte(signature), []byte(want)) {
			return nil
		}
	}
	return errors.New("no signature is right; verify the raw body, with this endpoint's key")
}

func store(id string, body []byte) error { // nil once the message is on the disk, whoever brought it there
	name := filepath.Join(inbox, fmt.Sprintf("%x", sha256.Sum256([]byte(id)))) // any id makes a safe name
	f, err := os.CreateTemp(inbox, ".new-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = fmt.Fprintf(f, "%s\n%s", id, body)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	switch err := os.Link(f.Name(), name); { // of many at once, one makes the name
	case err == nil:
		todo <- name
	case !errors.Is(err, os.ErrExist): // a duplicate is a success
		return err
	}
	return folder.Sync()
}

func work() { // one message after another; a file that was emptied is one that is done
	for name := range todo {
		message, err := os.ReadFile(name)
		if err == nil && len(message) > 0 {
			id, body, _ := strings.Cut(string(message), "\n")
			fmt.Println("done", id, len(body)) // your work goes here
			err = os.Truncate(name, 0)
		}
		if err != nil {
			log.Print("left for the next start: ", err)
		}
	}
}
