"""Real brokers behind the mocks of boto3's clients: `minibroker.msk`, beside moto. It needs the extra `msk`."""
