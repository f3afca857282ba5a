// An application's use of go-redis. Usage: goredis PORT PASSWORD PROTOCOL CONTROL.
package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"tern/clients/drive"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func connect(changes ...func(*redis.Options)) *redis.Client {
	protocol := drive.Get(strconv.Atoi(drive.Protocol))
	options := &redis.Options{Addr: drive.Address, Password: drive.Password, Protocol: protocol}
	for _, change := range changes {
		change(options)
	}
	return redis.NewClient(options)
}

func names() {
	client := connect(func(o *redis.Options) { o.Username, o.DB, o.ClientName = "default", 3, "tester" })
	defer client.Close()
	drive.Equal(client.ClientGetName(ctx).Val(), "tester")
	info := drive.Get(client.ClientInfo(ctx).Result())
	drive.Equal(info.DB, 3)
	drive.Equal(strconv.Itoa(info.Resp), drive.Protocol)
	drive.Ok(client.ACLSetUser(ctx, "reader", "on", ">secret", "~r:*", "+get", "+client|setinfo").Err())
	reader := connect(func(o *redis.Options) { o.Username, o.Password = "reader", "secret" })
	defer reader.Close()
	drive.Equal(reader.Get(ctx, "r:1").Err(), error(redis.Nil))
	drive.Fails(reader.Get(ctx, "k").Err(), "NOPERM")
	drive.Fails(reader.Set(ctx, "r:1", "v", 0).Err(), "NOPERM")
	wrong := connect(func(o *redis.Options) { o.Password = "wrong" })
	defer wrong.Close()
	drive.Fails(wrong.Ping(ctx).Err(), "WRONGPASS")
	nobody := connect(func(o *redis.Options) { o.Password = "" })
	defer nobody.Close()
	drive.Fails(nobody.Ping(ctx).Err(), "NOAUTH")
	drive.Equal(client.ACLDelUser(ctx, "reader").Val(), 1)
}

func values() {
	client := connect()
	defer client.Close()
	drive.Ok(client.FlushAll(ctx).Err())
	drive.Ok(client.Set(ctx, "k", "v", 100*time.Second).Err())
	drive.Equal(client.Get(ctx, "k").Val(), "v")
	drive.Equal(client.TTL(ctx, "k").Val() > 90*time.Second, true)
	drive.Equal(drive.Get(client.SetNX(ctx, "k", "w", 0).Result()), false)
	drive.Equal(client.SAdd(ctx, "s", "a", "b", "c").Val(), 3)
	drive.Equal(client.SAdd(ctx, "t", "b", "c", "d").Val(), 3)
	drive.Equal(drive.Sorted(client.SInter(ctx, "s", "t").Val()), []string{"b", "c"})
	drive.Equal(client.SMIsMember(ctx, "s", "a", "x").Val(), []bool{true, false})
	drive.Equal(drive.Get(client.IncrByFloat(ctx, "f", 1.5).Result()), 1.5)
	drive.Fails(client.Incr(ctx, "s").Err(), "WRONGTYPE")
	all := make([]byte, 256000)
	for i := range all {
		all[i] = byte(i)
	}
	drive.Ok(client.Set(ctx, string(all[:256]), all, 0).Err())
	drive.Equal(drive.Get(client.Get(ctx, string(all[:256])).Bytes()), all)
}

func pools() {
	client := connect(func(o *redis.Options) { o.PoolSize, o.MinIdleConns = 8, 2 })
	defer client.Close()
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() {
			for range 10 {
				drive.Ok(client.Incr(ctx, "count").Err())
			}
		})
	}
	all.Wait()
	drive.Equal(client.Get(ctx, "count").Val(), "400")
	drive.Equal(client.PoolStats().TotalConns <= 8, true)
}

func pipelines() {
	client := connect()
	defer client.Close()
	replies := drive.Get(client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for range 1000 {
			pipe.Incr(ctx, "n")
		}
		return nil
	}))
	drive.Equal(len(replies), 1000)
	drive.Equal(replies[999].(*redis.IntCmd).Val(), 1000)
}

func transactions() {
	client := connect()
	defer client.Close()
	drive.Ok(client.Set(ctx, "w", 1, 0).Err())
	change := func(disturb bool) error {
		return client.Watch(ctx, func(tx *redis.Tx) error {
			seen := drive.Get(tx.Get(ctx, "w").Int())
			if disturb {
				drive.Ok(client.Set(ctx, "w", 5, 0).Err())
			}
			_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				return pipe.Set(ctx, "w", seen+1, 0).Err()
			})
			return err
		}, "w")
	}
	drive.Equal(errors.Is(change(true), redis.TxFailedErr), true)
	drive.Equal(client.Get(ctx, "w").Val(), "5")
	drive.Ok(change(false))
	drive.Equal(client.Get(ctx, "w").Val(), "6")
}

func scans() {
	client := connect()
	defer client.Close()
	drive.Ok(client.FlushAll(ctx).Err())
	for i := range 500 {
		drive.Ok(client.Set(ctx, fmt.Sprintf("key:%d", i), i, 0).Err())
		drive.Ok(client.SAdd(ctx, "big", i).Err())
	}
	drive.Equal(count(client.Scan(ctx, 0, "key:*", 100)), 500)
	drive.Equal(count(client.ScanType(ctx, 0, "", 100, "set")), 1)
	drive.Equal(count(client.SScan(ctx, "big", 0, "", 50)), 500)
}

func count(scan *redis.ScanCmd) int {
	seen := map[string]bool{}
	items := scan.Iterator()
	for items.Next(ctx) {
		seen[items.Val()] = true
	}
	drive.Ok(items.Err())
	return len(seen)
}

func messages() {
	client := connect()
	defer client.Close()
	reader := client.Subscribe(ctx, "news")
	defer reader.Close()
	drive.Ok(reader.PSubscribe(ctx, "n*"))
	for range 2 {
		_, confirmed := drive.Get(reader.Receive(ctx)).(*redis.Subscription)
		drive.Equal(confirmed, true)
	}
	drive.Equal(client.Publish(ctx, "news", "hello").Val(), 2)
	heard := reader.Channel()
	first, second := <-heard, <-heard
	drive.Equal(drive.Sorted([]string{first.Pattern, second.Pattern}), []string{"", "n*"})
	drive.Equal(first.Payload+second.Payload, "hellohello")
	shard := client.SSubscribe(ctx, "shard")
	defer shard.Close()
	drive.Get(shard.Receive(ctx))
	drive.Equal(client.SPublish(ctx, "shard", "x").Val(), 1)
	drive.Equal(drive.Get(shard.ReceiveMessage(ctx)).Payload, "x")
}

func startingAgain() {
	client := connect()
	defer client.Close()
	reader := client.Subscribe(ctx, "news")
	defer reader.Close()
	drive.Get(reader.Receive(ctx))
	heard := reader.Channel()
	drive.Ok(client.Set(ctx, "kept", "1", 0).Err())
	drive.Restart()
	drive.Until("an answer", func() bool { return client.Get(ctx, "kept").Val() == "1" })
	drive.Until("the subscription", func() bool { return client.Publish(ctx, "news", "again").Val() == 1 })
	drive.Equal((<-heard).Payload, "again")
}

func main() {
	drive.Run("go-redis", []drive.Case{
		{"names", names}, {"values", values}, {"pools", pools}, {"pipelines", pipelines}, {"transactions", transactions},
		{"collections", collections}, {"scans", scans}, {"messages", messages}, {"starting_again", startingAgain},
	})
}
