package main

import (
	"math"
	"sync"
	"time"

	"tern/clients/drive"

	"github.com/redis/go-redis/v9"
)

func collections() {
	client := connect()
	defer client.Close()
	drive.Ok(client.FlushAll(ctx).Err())
	aHash(client)
	aQueue(client)
	aLeaderboard(client)
	aMap(client)
	nothingComes(client)
}

func aHash(client *redis.Client) {
	user := struct {
		Name   string `redis:"name"`
		City   string `redis:"city"`
		Visits int    `redis:"visits"`
	}{"Ann", "Rome", 5}
	drive.Equal(drive.Get(client.HSet(ctx, "user", user).Result()), 3)
	all := map[string]string{"name": "Ann", "city": "Rome", "visits": "5"}
	drive.Equal(drive.Get(client.HGetAll(ctx, "user").Result()), all)
	drive.Equal(drive.Get(client.HIncrBy(ctx, "user", "visits", 3).Result()), 8)
	drive.Equal(drive.Get(client.HDel(ctx, "user", "city", "none").Result()), 1)
	drive.Ok(client.HMGet(ctx, "user", "name", "visits").Scan(&user))
	drive.Equal(user.Visits, 8)
	drive.Equal(drive.Get(client.HPExpire(ctx, "user", 20*time.Millisecond, "visits", "none").Result()), []int64{1, -2})
	drive.Equal(drive.Get(client.HTTL(ctx, "user", "name").Result()), []int64{-1})
	drive.Until("an expired field", func() bool { return len(client.HGetAll(ctx, "user").Val()) == 1 })
}

func aQueue(client *redis.Client) {
	push := func() error { return client.RPush(ctx, "queue", "c").Err() }
	drive.Equal(drive.Get(client.RPush(ctx, "queue", "a", "b").Result()), 2)
	drive.Equal(drive.Get(client.LPop(ctx, "queue").Result()), "a")
	drive.Equal(drive.Get(client.LRange(ctx, "queue", 0, -1).Result()), []string{"b"})
	drive.Equal(drive.Get(client.LMove(ctx, "queue", "working", "LEFT", "RIGHT").Result()), "b")
	pops := func(timeout time.Duration) ([]string, error) {
		return client.BLPop(ctx, timeout, "none", "queue").Result()
	}
	moves := func(timeout time.Duration) (string, error) {
		return client.BLMove(ctx, "queue", "working", "LEFT", "RIGHT", timeout).Result()
	}
	drive.Equal(drive.Waits(20*time.Second, pops, push), []string{"queue", "c"})
	drive.Equal(drive.Waits(20*time.Second, moves, push), "c")
	drive.Equal(drive.Get(client.LRange(ctx, "working", 0, -1).Result()), []string{"b", "c"})
}

func aLeaderboard(client *redis.Client) {
	inf := math.Inf(1)
	everyone := []redis.Z{{Score: 2, Member: "Bob"}, {Score: 3.75, Member: "Ann"}, {Score: inf, Member: "Cid"}}
	drive.Equal(drive.Get(client.ZAdd(ctx, "board", redis.Z{Score: 1.5, Member: "Ann"}, everyone[0], everyone[2]).Result()), 3)
	drive.Equal(drive.Get(client.ZIncrBy(ctx, "board", 2.25, "Ann").Result()), 3.75)
	drive.Equal(drive.Get(client.ZRangeWithScores(ctx, "board", 0, -1).Result()), everyone)
	drive.Equal(drive.Get(client.ZScore(ctx, "board", "Cid").Result()), inf)
	drive.Equal(client.ZRevRank(ctx, "board", "none").Err(), error(redis.Nil))
	ranked := drive.Get(client.ZRevRankWithScore(ctx, "board", "Ann").Result())
	drive.Equal(ranked, redis.RankScore{Rank: 1, Score: 3.75})
	above := &redis.ZRangeBy{Min: "(2", Max: "+inf", Count: 1}
	drive.Equal(drive.Get(client.ZRangeByScoreWithScores(ctx, "board", above).Result()), everyone[1:2])
	drive.Equal(drive.Get(client.ZPopMin(ctx, "board", 2).Result()), everyone[:2])
	eve := redis.Z{Score: -0.5, Member: "Eve"}
	adds := func() error { return client.ZAdd(ctx, "waited", eve).Err() }
	pops := func(timeout time.Duration) (*redis.ZWithKey, error) {
		return client.BZPopMin(ctx, timeout, "waited").Result()
	}
	drive.Equal(*drive.Waits(20*time.Second, pops, adds), redis.ZWithKey{Key: "waited", Z: eve})
}

func aMap(client *redis.Client) {
	palermo := &redis.GeoLocation{Name: "Palermo", Longitude: 13.361389, Latitude: 38.115556}
	catania := &redis.GeoLocation{Name: "Catania", Longitude: 15.087269, Latitude: 37.502669}
	drive.Equal(drive.Get(client.GeoAdd(ctx, "places", palermo, catania).Result()), 2)
	near := redis.GeoSearchQuery{Longitude: 15, Latitude: 37, Radius: 200, RadiusUnit: "km", Sort: "ASC"}
	drive.Equal(drive.Get(client.GeoSearch(ctx, "places", &near).Result()), []string{"Catania", "Palermo"})
	detailed := &redis.GeoSearchLocationQuery{GeoSearchQuery: near, WithCoord: true, WithDist: true}
	drive.Equal(drive.Get(client.GeoSearchLocation(ctx, "places", detailed).Result()), []redis.GeoLocation{
		{Name: "Catania", Longitude: 15.087267458438873, Latitude: 37.50266842333162, Dist: 56.4413},
		{Name: "Palermo", Longitude: 13.361389338970184, Latitude: 38.1155563954963, Dist: 190.4424},
	})
}

// nothingComes lets all calls that block end at once: go-redis makes a shorter timeout a second.
func nothingComes(client *redis.Client) {
	var all sync.WaitGroup
	all.Go(func() { drive.Equal(client.BLPop(ctx, time.Second, "none").Err(), error(redis.Nil)) })
	all.Go(func() {
		drive.Equal(client.BLMove(ctx, "none", "x", "LEFT", "RIGHT", time.Second).Err(), error(redis.Nil))
	})
	all.Go(func() { drive.Equal(client.BZPopMin(ctx, time.Second, "none").Err(), error(redis.Nil)) })
	all.Wait()
}
