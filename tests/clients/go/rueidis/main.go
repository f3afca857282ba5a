// An application's use of rueidis, including its client-side caching. Usage: rueidis PORT PASSWORD PROTOCOL CONTROL.
package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"tern/clients/drive"

	"github.com/redis/rueidis"
)

var ctx = context.Background()

func option(changes ...func(*rueidis.ClientOption)) rueidis.ClientOption {
	two := drive.Protocol == "2"
	option := rueidis.ClientOption{
		InitAddress: []string{drive.Address}, Password: drive.Password, AlwaysRESP2: two, DisableCache: two,
	}
	for _, change := range changes {
		change(&option)
	}
	return option
}

func connect(changes ...func(*rueidis.ClientOption)) rueidis.Client {
	return drive.Get(rueidis.NewClient(option(changes...)))
}

// do sends words unchanged.
func do(client rueidis.CoreClient, words ...string) rueidis.RedisResult {
	return client.Do(ctx, client.B().Arbitrary(words...).Build())
}

func names() {
	client := connect(func(o *rueidis.ClientOption) { o.Username, o.SelectDB, o.ClientName = "default", 3, "tester" })
	defer client.Close()
	drive.Equal(drive.Get(client.Do(ctx, client.B().ClientGetname().Build()).ToString()), "tester")
	drive.Ok(do(client, "ACL", "SETUSER", "reader", "on", ">secret", "~r:*", "+get", "+client|setinfo", "+client|tracking").Error())
	reader := connect(func(o *rueidis.ClientOption) { o.Username, o.Password = "reader", "secret" })
	defer reader.Close()
	drive.Equal(rueidis.IsRedisNil(do(reader, "GET", "r:1").Error()), true)
	drive.Fails(do(reader, "GET", "k").Error(), "NOPERM")
	drive.Fails(do(reader, "SET", "r:1", "v").Error(), "NOPERM")
	_, err := rueidis.NewClient(option(func(o *rueidis.ClientOption) { o.Password = "wrong" }))
	drive.Fails(err, "WRONGPASS")
	_, err = rueidis.NewClient(option(func(o *rueidis.ClientOption) { o.Password = "" }))
	drive.Fails(err, "NOAUTH")
	drive.Equal(drive.Get(do(client, "ACL", "DELUSER", "reader").AsInt64()), 1)
}

func values() {
	client := connect()
	defer client.Close()
	drive.Ok(do(client, "FLUSHALL").Error())
	drive.Ok(client.Do(ctx, client.B().Set().Key("k").Value("v").ExSeconds(100).Build()).Error())
	drive.Equal(drive.Get(client.Do(ctx, client.B().Get().Key("k").Build()).ToString()), "v")
	drive.Equal(rueidis.IsRedisNil(client.Do(ctx, client.B().Set().Key("k").Value("w").Nx().Build()).Error()), true)
	drive.Equal(drive.Get(client.Do(ctx, client.B().Sadd().Key("s").Member("a", "b", "c").Build()).AsInt64()), 3)
	drive.Equal(drive.Get(client.Do(ctx, client.B().Sadd().Key("t").Member("b", "c", "d").Build()).AsInt64()), 3)
	both := drive.Get(client.Do(ctx, client.B().Sinter().Key("s", "t").Build()).AsStrSlice())
	drive.Equal(drive.Sorted(both), []string{"b", "c"})
	drive.Equal(drive.Get(client.Do(ctx, client.B().Incrbyfloat().Key("f").Increment(1.5).Build()).AsFloat64()), 1.5)
	drive.Fails(client.Do(ctx, client.B().Incr().Key("s").Build()).Error(), "WRONGTYPE")
	all := make([]byte, 256000)
	for i := range all {
		all[i] = byte(i)
	}
	drive.Ok(client.Do(ctx, client.B().Set().Key("bytes").Value(string(all)).Build()).Error())
	drive.Equal(drive.Get(client.Do(ctx, client.B().Get().Key("bytes").Build()).AsBytes()), all)
}

func pools() {
	client := connect(func(o *rueidis.ClientOption) { o.DisableAutoPipelining, o.BlockingPoolSize = true, 8 })
	defer client.Close()
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() {
			for range 10 {
				drive.Ok(client.Do(ctx, client.B().Incr().Key("count").Build()).Error())
			}
		})
	}
	all.Wait()
	drive.Equal(drive.Get(do(client, "GET", "count").ToString()), "400")
}

func pipelines() {
	client := connect()
	defer client.Close()
	commands := make(rueidis.Commands, 0, 1000)
	for range 1000 {
		commands = append(commands, client.B().Incr().Key("n").Build())
	}
	replies := client.DoMulti(ctx, commands...)
	drive.Equal(drive.Get(replies[999].AsInt64()), 1000)
}

func transactions() {
	client := connect()
	defer client.Close()
	drive.Ok(do(client, "SET", "w", "1").Error())
	change := func(disturb bool) error {
		return client.Dedicated(func(c rueidis.DedicatedClient) error {
			drive.Ok(do(c, "WATCH", "w").Error())
			seen := drive.Get(do(c, "GET", "w").AsInt64())
			if disturb {
				drive.Ok(do(client, "SET", "w", "5").Error())
			}
			set := c.B().Set().Key("w").Value(fmt.Sprint(seen + 1)).Build()
			replies := c.DoMulti(ctx, c.B().Multi().Build(), set, c.B().Exec().Build())
			return replies[2].Error()
		})
	}
	drive.Equal(rueidis.IsRedisNil(change(true)), true)
	drive.Equal(drive.Get(do(client, "GET", "w").ToString()), "5")
	drive.Ok(change(false))
	drive.Equal(drive.Get(do(client, "GET", "w").ToString()), "6")
}

func scans() {
	client := connect()
	defer client.Close()
	drive.Ok(do(client, "FLUSHALL").Error())
	for i := range 500 {
		drive.Ok(do(client, "SET", fmt.Sprintf("key:%d", i), "x").Error())
		drive.Ok(do(client, "SADD", "big", fmt.Sprint(i)).Error())
	}
	keys := rueidis.NewScanner(func(cursor uint64) (rueidis.ScanEntry, error) {
		return client.Do(ctx, client.B().Scan().Cursor(cursor).Match("key:*").Count(100).Build()).AsScanEntry()
	})
	drive.Equal(count(keys), 500)
	members := rueidis.NewScanner(func(cursor uint64) (rueidis.ScanEntry, error) {
		return client.Do(ctx, client.B().Sscan().Key("big").Cursor(cursor).Count(50).Build()).AsScanEntry()
	})
	drive.Equal(count(members), 500)
}

func count(items *rueidis.Scanner) int {
	seen := map[string]bool{}
	for item := range items.Iter() {
		seen[item] = true
	}
	drive.Ok(items.Err())
	return len(seen)
}

// hear subscribes to "news" and "n*" and forwards the messages.
func hear(client rueidis.Client) chan string {
	heard := make(chan string, 100)
	note := func(m rueidis.PubSubMessage) { heard <- m.Pattern + " " + m.Channel + " " + m.Message }
	go client.Receive(ctx, client.B().Subscribe().Channel("news").Build(), note)
	go client.Receive(ctx, client.B().Psubscribe().Pattern("n*").Build(), note)
	return heard
}

func publish(client rueidis.Client, text string) int64 {
	listeners, err := client.Do(ctx, client.B().Publish().Channel("news").Message(text).Build()).AsInt64()
	if err != nil {
		return 0
	}
	return listeners
}

func messages() {
	client := connect()
	defer client.Close()
	heard := hear(client)
	drive.Until("both", func() bool { return publish(client, "hello") == 2 })
	// One of the two may have received earlier attempts.
	seen := map[string]bool{}
	drive.Until("the message", func() bool { seen[<-heard] = true; return len(seen) == 2 })
	drive.Equal(seen, map[string]bool{" news hello": true, "n* news hello": true})
}

func startingAgain() {
	client := connect()
	defer client.Close()
	heard := hear(client)
	drive.Until("both", func() bool { return publish(client, "first") == 2 })
	drive.Ok(do(client, "SET", "kept", "1").Error())
	drive.Restart()
	drive.Until("an answer", func() bool {
		value, _ := do(client, "GET", "kept").ToString()
		return value == "1"
	})
	drive.Until("the subscriptions", func() bool { return publish(client, "again") == 2 })
	drive.Until("the message", func() bool { return <-heard == "n* news again" })
}

// A value comes from the client's cache until another client writes it.
func cached() {
	client, other := connect(), connect()
	defer client.Close()
	defer other.Close()
	get := func() rueidis.RedisResult {
		return client.DoCache(ctx, client.B().Get().Key("cached").Cache(), time.Minute)
	}
	drive.Ok(do(other, "SET", "cached", "1").Error())
	drive.Equal(drive.Get(get().ToString()), "1")
	drive.Equal(get().IsCacheHit(), true)
	for n := range 50 {
		drive.Ok(do(other, "SET", "cached", fmt.Sprint(n)).Error())
		drive.Until("the new value", func() bool { return drive.Get(get().ToString()) == fmt.Sprint(n) })
		drive.Equal(get().IsCacheHit(), true)
	}
	drive.Ok(do(other, "FLUSHALL").Error())
	drive.Until("no value", func() bool { return rueidis.IsRedisNil(get().Error()) })
}

func main() {
	cases := []drive.Case{
		{"names", names}, {"values", values}, {"pools", pools}, {"pipelines", pipelines}, {"transactions", transactions},
		{"collections", collections}, {"scans", scans}, {"messages", messages}, {"starting_again", startingAgain},
	}
	if drive.Protocol == "3" {
		cases = append(cases, drive.Case{Name: "cached", Run: cached})
	}
	drive.Run("rueidis", cases)
}
