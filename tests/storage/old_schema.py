"""The database file of mixseek-core 0.1."""

OLD = """
CREATE SEQUENCE round_history_id_seq; CREATE SEQUENCE leader_board_id_seq;
CREATE SEQUENCE round_status_id_seq; CREATE SEQUENCE execution_summary_id_seq;
CREATE TABLE round_history (id INTEGER PRIMARY KEY DEFAULT nextval('round_history_id_seq'),
    execution_id VARCHAR NOT NULL, team_id VARCHAR NOT NULL, team_name VARCHAR NOT NULL, round_number INTEGER
    NOT NULL, message_history JSON,
    member_submissions_record JSON, created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
    UNIQUE (execution_id, team_id, round_number));
CREATE TABLE leader_board (id INTEGER PRIMARY KEY DEFAULT nextval('leader_board_id_seq'),
    execution_id VARCHAR NOT NULL, team_id VARCHAR NOT NULL, team_name VARCHAR NOT NULL, round_number INTEGER
    NOT NULL,
    submission_content TEXT NOT NULL,     submission_format VARCHAR DEFAULT 'md', score FLOAT NOT NULL,
    score_details JSON NOT NULL,
    final_submission BOOLEAN DEFAULT FALSE, exit_reason VARCHAR, created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
    updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, UNIQUE (execution_id, team_id, round_number));
CREATE TABLE round_status (id INTEGER PRIMARY KEY DEFAULT nextval('round_status_id_seq'),
    execution_id VARCHAR NOT NULL, team_id VARCHAR NOT NULL, team_name VARCHAR NOT NULL, round_number INTEGER
    NOT NULL, should_continue BOOLEAN,
    reasoning TEXT, confidence_score FLOAT, round_started_at TIMESTAMP, round_ended_at TIMESTAMP,
    created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
    UNIQUE (execution_id, team_id, round_number));
CREATE TABLE execution_summary (id INTEGER DEFAULT nextval('execution_summary_id_seq'),
    execution_id VARCHAR PRIMARY KEY, user_prompt TEXT NOT NULL, status VARCHAR NOT NULL, team_results JSON,
    total_teams INTEGER NOT NULL,
    best_team_id VARCHAR, best_score DOUBLE, total_execution_time_seconds DOUBLE,
    completed_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP);
CREATE INDEX idx_round_history_execution ON round_history (execution_id);
CREATE INDEX idx_leader_board_score ON leader_board (score);
CREATE INDEX idx_leader_board_execution ON leader_board (execution_id);
CREATE INDEX idx_leader_board_execution_score ON leader_board (execution_id, score);
CREATE INDEX idx_round_status_execution_team_round ON round_status (execution_id, team_id, round_number);
CREATE INDEX idx_execution_summary_status ON execution_summary (status);
"""
