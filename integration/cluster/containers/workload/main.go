// SPDX-License-Identifier: Apache-2.0

// A service in a pod: it answers over HTTP and ends as its environment says.
//
//	PORT     where it listens; it listens nowhere without one
//	LINGER   how long it takes to end after SIGTERM, as a Go duration; "forever" ignores SIGTERM
//	EXIT     how long it runs before it ends on its own, as a Go duration; without it, until a signal
package main

import (
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ended := make(chan os.Signal, 4)
	signal.Notify(ended, syscall.SIGTERM)
	if port := os.Getenv("PORT"); port != "" {
		name, _ := os.Hostname()
		http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, name) })
		go func() {
			fmt.Fprintln(os.Stderr, http.ListenAndServe(":"+port, nil))
			os.Exit(1)
		}()
	}
	if limit, err := time.ParseDuration(os.Getenv("EXIT")); err == nil {
		time.AfterFunc(limit, func() { os.Exit(0) })
	}
	fmt.Println("started")
	for range ended {
		fmt.Println("received SIGTERM")
		if os.Getenv("LINGER") == "forever" {
			continue
		}
		linger, _ := time.ParseDuration(os.Getenv("LINGER"))
		time.Sleep(linger)
		return
	}
}
